// Package attach holds `cotal attach`: a person looks at the terminal of an agent, from any machine of the mesh, and drives it.
//
// A terminal of the agent's size shows what the agent's shows, byte for byte. One of another size shows the part around the cursor. The
// person's terminal is always given back as it was.
package attach
