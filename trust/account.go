package trust

import "github.com/nats-io/jwt/v2"

// Account is the public key of the broker account that the credentials are of: an account of their space, and of no other space before or
// after it, whatever that is called. It is empty when the JWT names none.
func (c *Credentials) Account() string {
	claims, err := jwt.DecodeUserClaims(c.JWT())
	if err != nil {
		return ""
	}
	return claims.IssuerAccount
}
