package view

import "github.com/cotal-go/cotal/trust"

// Rights is what an identity receives as it comes and may post to, by its profile and lists. Neither is nil.
func Rights(id trust.Identity) (reads, posts []string) {
	switch id.Profile {
	case trust.Observer, trust.Admin:
		return []string{">"}, []string{}
	case trust.Operator:
		return []string{}, []string{">"}
	}
	return append([]string{}, id.Subscribe...), append([]string{}, id.Publish...)
}
