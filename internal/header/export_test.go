package header

// Fits is Whole of a block of a length and of what was read of it.
var Fits = whole
