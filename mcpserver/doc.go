// Package mcpserver gives an agent its tools: a server of the Model Context Protocol over one endpoint of a space.
//
// # Start
//
//	var news mcpserver.News
//	o := &endpoint.Options{}
//	mcpserver.Prepare(o, &news, false)
//	ep, err := endpoint.Connect(ctx, server, src, o)
//	s := mcpserver.New(ep, &mcpserver.Options{News: &news, Join: []string{"general"}})
//	go s.Run(ctx)                                  // receives, keeps presence, wakes
//	err = s.Serve(ctx, &mcp.StdioTransport{})      // one client
//
// [Server.Handler] serves clients over HTTP, [Options].HostSocket the hooks of the program that the agent lives in, which
// [Hook] speaks.
//
// # Promises
//
// Arguments are closed: a call with a key that the tool does not name, or a value of another type, is refused and does nothing.
// An identity is never an argument: the agent speaks as what its credential says.
//
// What other participants wrote is shown as data. Each message stands under a line that this package wrote, with the principal
// that the broker let send it; every line of its text begins with "| ", and characters that move a cursor, hide text or turn
// its direction are written as escapes. So no text can end its own frame or begin another.
//
// The inbox loses nothing and acknowledges nothing early. A page names itself; the messages of a page are acknowledged when
// a later call gives that name back, or the host is known to keep the page that a hook gave it. What was not acknowledged is
// shown again, also by the next process. What is longer than a page comes in parts. Direct and role messages come first, then mentions,
// then channels, each in the order of arrival.
//
// Memory is bounded, see Prepare: at most 32 direct messages and one of the role are held here, and 1 MiB of channel messages and
// mentions each (one message more, when it is larger). Others stay with the broker, which a page says with their number where it
// is known.
//
// # Not promised
//
// Messages of channels of the class live are at-most-once, as everywhere. A mention in a channel that the agent has joined waits
// behind more than 254 unread messages of that channel, or 1 MiB. What a peer says of itself, such as its display name, is shown as its claim.
//
// # Concurrency
//
// All methods are safe for concurrent use. Tools of one client run at the same time, as those of several do; they share one
// inbox. No two mutexes are held at once, and none over a call to the endpoint but that of the directory of peers.
package mcpserver
