package seat

// pageOut does nothing here: the system takes back clean pages of programs by itself.
func pageOut() {}
