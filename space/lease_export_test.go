package space

// Rev is the sequence of the record of a lease.
func (l Lease) Rev() uint64 { return l.rev }
