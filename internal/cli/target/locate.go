package target

import "github.com/cotal-go/cotal/internal/launch"

// locate says where the broker of the target is now, for connections that outlive it: a mesh may be started again on another port. It is
// nil where only the address is known, as with --server and for a mesh elsewhere.
func (t *Target) locate() func() string {
	if t.launch != nil {
		return t.launched
	}
	c := t.Config
	if c.Server.Explicit() || c.Remote != nil || t.link != nil || c.Project == nil || c.Run == nil {
		return nil
	}
	return func() string {
		run, err := c.Project.Run()
		if err != nil || run == nil || gone(c.Project, run) {
			return "" // it is down or starting, and who listens where it was is somebody else
		}
		return run.URL
	}
}

// launched is the address in the launch file now: the supervisor keeps it.
func (t *Target) launched() string {
	f, err := launch.Read(t.launchFile)
	if err != nil || f.UID != t.launch.UID {
		return t.launch.Server
	}
	return f.Server
}
