package view

// Stamp exposes how times are shown.
var Stamp = stamp
