// Package connector knows the hosts that an agent can run in: for each, how it is started so that it has its tools, its persona,
// its model and its first task, and what it cannot be given.
//
// [Builtin] is the list. A [Connector] turns a [Request] into a [Launch]: arguments, environment and files, all decided before
// anything exists. What a host cannot take is refused there, with a code and with what to do instead; it is never left out in
// silence, since an agent that runs with another model than asked is worse than one that does not run. [Write] then makes the files.
//
// The rules that every connector keeps, and that package connectortest holds them to:
//
//   - No argument and no environment value is a secret. A credential is reached by the path of the launch file alone, and keys
//     of model providers are passed on by name ([Launch.PassEnv]).
//   - Files are below Request.Dir, for this user alone, and two agents share none.
//   - The prompt is never read as an option, whatever it begins with, and no text reaches a shell unquoted.
//   - The host keeps its own rules of approval. The only thing that is allowed ahead is the use of the tools of the space,
//     which the broker bounds by the agent's credential. No connector passes a flag that skips approvals or trusts a folder.
//   - The user's own settings and login stay in force and are not written: what a connector adds is laid over them by flags, by an
//     environment variable or, where the host has neither, in a home of the agent's own that leads to the user's login.
//
// A host that has never run for this user asks its first questions (login, theme, trust of the folder) in its terminal, where
// whoever attaches answers them; until then the agent is starting.
//
// Connectors hold no state and are safe for concurrent use.
package connector
