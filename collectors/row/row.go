// Package row writes rows of InfluxDB line protocol.
package row

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"dumbbell/collectors/clock"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
)

// Tags name a series beside its measurement. Their values have to be few: a
// run, a host, a flow, never a socket.
type Tags map[string]string

// With returns the tags and some more, given as key, value, key, value.
func (t Tags) With(more ...string) Tags {
	all := make(Tags, len(t)+len(more)/2)
	for k, v := range t {
		all[k] = v
	}
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

// A Series is the beginning of a row, escaped once for all of them:
// measurement and tags.
type Series string

// NewSeries builds a series. Tags without a value are left out, and characters
// that line protocol cannot express become "_".
func NewSeries(measurement string, tags Tags) Series {
	keys := make([]string, 0, len(tags))
	for k, v := range tags {
		if v != "" {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	var e lineprotocol.Encoder
	e.StartLine(measurement)
	for _, k := range keys {
		e.AddTag(k, printable(tags[k]))
	}
	if err := e.Err(); err != nil {
		panic(err) // measurement and keys are constants of the program
	}
	return Series(e.Bytes())
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) || r == '\\' {
			return '_'
		}
		return r
	}, s)
}

// Rows gathers rows in one growing buffer. A row is begun, gets its fields and
// is ended; one without fields leaves nothing. Names of fields are letters,
// digits and "_". It is not safe for concurrent use.
type Rows struct {
	clock  clock.Clock
	buffer []byte
	start  int // of the row begun last
	empty  int // length of the row begun last without fields
	count  int
}

// NewRows returns an empty buffer whose rows also get the field mono_ns.
func NewRows(clock clock.Clock) *Rows { return &Rows{clock: clock} }

// Begin starts a row.
func (r *Rows) Begin(s Series) {
	r.start = len(r.buffer)
	r.buffer = append(append(r.buffer, s...), ' ')
	r.empty = len(r.buffer)
}

// Int adds an integer. They are signed because InfluxDB 1 has no others.
func (r *Rows) Int(name string, v int64) {
	r.buffer = append(strconv.AppendInt(append(append(r.buffer, name...), '='), v, 10), 'i', ',')
}

// A Key is the name of a field as a row has it, for Ints.
type Key string

// NewKey makes a key of a name.
func NewKey(name string) Key { return Key(name + "=") }

// Ints adds integers, of which a row of tcp_info mostly consists.
func (r *Rows) Ints(keys []Key, values []int64) {
	b := r.buffer
	for i, key := range keys {
		b = append(b, key...)
		if v := values[i]; uint64(v) < 10 {
			b = append(b, byte('0'+v), 'i', ',')
		} else {
			b = append(strconv.AppendInt(b, v, 10), 'i', ',')
		}
	}
	r.buffer = b
}

// Float adds a number; one that is not finite is left out.
func (r *Rows) Float(name string, v float64) {
	if !math.IsNaN(v) && !math.IsInf(v, 0) {
		r.buffer = append(strconv.AppendFloat(append(append(r.buffer, name...), '='), v, 'g', -1, 64), ',')
	}
}

// Bool adds a truth value.
func (r *Rows) Bool(name string, v bool) {
	r.buffer = append(strconv.AppendBool(append(append(r.buffer, name...), '='), v), ',')
}

// String adds a text; a line break in it becomes a space, since a row is a line.
func (r *Rows) String(name, v string) {
	r.buffer = append(append(r.buffer, name...), '=', '"')
	for i := range len(v) {
		switch c := v[i]; c {
		case '"', '\\':
			r.buffer = append(r.buffer, '\\', c)
		case '\n', '\r':
			r.buffer = append(r.buffer, ' ')
		default:
			r.buffer = append(r.buffer, c)
		}
	}
	r.buffer = append(r.buffer, '"', ',')
}

// End stamps the row with the time at which it was taken.
func (r *Rows) End(t time.Time) {
	if len(r.buffer) == r.empty {
		r.buffer = r.buffer[:r.start]
		return
	}
	r.buffer = strconv.AppendInt(append(r.buffer, "mono_ns="...), int64(r.clock.Mono(t)), 10)
	r.buffer = append(strconv.AppendInt(append(r.buffer, 'i', ' '), t.UnixNano(), 10), '\n')
	r.count++
}

// Len is the number of rows.
func (r *Rows) Len() int { return r.count }

// Bytes are the rows, valid until the next one is begun.
func (r *Rows) Bytes() []byte { return r.buffer }

// Reset forgets the rows and keeps their storage.
func (r *Rows) Reset() { r.buffer, r.count = r.buffer[:0], 0 }
