package actor

// For tests in package actor_test.
var (
	Tree     = tree
	Find     = find
	OwnerOf  = ownerOf
	ParseEnd = parseEnd
)
