package endpoint

// Quitting is closed when Close has begun.
func (e *Endpoint) Quitting() <-chan struct{} { return e.quit }
