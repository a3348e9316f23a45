package target

import (
	"context"
	"slices"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/config"
)

// NoteSpaces brings the records that other commands find the mesh by up to what the node serves now, and returns the
// spaces.
func (t *Target) NoteSpaces(ctx context.Context, node *cotal.NodeClient) ([]string, error) {
	st, err := node.Status(ctx)
	if err != nil {
		return nil, t.Explain(err)
	}
	names := make([]string, 0, len(st.Spaces))
	for _, s := range st.Spaces {
		names = append(names, s.Name)
	}
	if t.Config.Run == nil || t.Config.Project == nil {
		return names, nil
	}
	p := t.Config.Project
	run := *t.Config.Run
	run.Spaces = names
	if err := p.SaveRun(run); err != nil {
		return nil, err
	}
	s, err := p.Settings()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(names, s.Space) {
		s.Space = ""
		if len(names) > 0 {
			s.Space = names[0]
		}
		if err := p.SaveSettings(s); err != nil {
			return nil, err
		}
	}
	mesh := config.Mesh{Root: p.Root, URL: run.URL, CA: run.CA, TLSName: run.TLSName, Space: s.Space, Spaces: names, Open: run.Open}
	return names, t.Config.Machine.Save(mesh)
}
