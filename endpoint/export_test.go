package endpoint

// Quitting is closed when Close has begun.
func (e *Endpoint) Quitting() <-chan struct{} { return e.quit }

// LinkClosed is closed when the connection in use has ended for good.
func (e *Endpoint) LinkClosed() <-chan struct{} { return e.link.Load().closed }
