package command

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// maxDays keeps days within what a duration holds.
const maxDays = 100_000

// ParseDuration reads a duration such as 90m, 1h30m or 3d. Its error has code bad-request and names what.
func ParseDuration(what, s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n uint64
		if n, err = strconv.ParseUint(days, 10, 32); err == nil && n <= maxDays {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	if err != nil || strings.HasSuffix(s, "d") {
		return 0, Usagef("%s %q: want a duration such as 30m, 12h or 7d", what, s)
	}
	return d, nil
}

// Duration writes a duration for a person: 7d, 36h, 1h30m.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if d >= time.Minute && d%time.Minute == 0 {
		s = strings.TrimSuffix(s, "0s")
	}
	if d >= time.Hour && d%time.Hour == 0 {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// durationFlag is a flag of a duration that may be in days.
type durationFlag struct{ into *time.Duration }

// DurationFlag makes a flag of a duration that may be written in days. Its default is what into holds.
func DurationFlag(into *time.Duration) pflag.Value { return &durationFlag{into} }

func (f *durationFlag) Set(s string) (err error) {
	d, err := ParseDuration("duration", s)
	if err == nil {
		*f.into = d
	}
	return err
}

func (f *durationFlag) String() string {
	if f.into == nil || *f.into == 0 {
		return ""
	}
	return Duration(*f.into)
}

func (*durationFlag) Type() string { return "duration" }
