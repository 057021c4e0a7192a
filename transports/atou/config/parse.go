package config

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

const maxLine = 64 << 20 // bytes: of a droplist

// ParseSender reads a sender's configuration over the defaults. The error
// names, for each thing wrong, name and line, the key, what was found and what
// is allowed.
func ParseSender(r io.Reader, name string) (Sender, error) {
	return newSender(name, func(e end) error { return parse(r, name, e) })
}

// SenderOf takes a sender's configuration from its keys as ParseSender does
// from lines. The error names them as name.key.
func SenderOf(values map[string]string, name string) (Sender, error) {
	return newSender(name, func(e end) error { return e.setAll(values, name) })
}

func newSender(name string, read func(end) error) (Sender, error) {
	c, other := DefaultSender(), Receiver{}
	if err := read(end{c.fields(), other.fields(), "receiver"}); err != nil {
		return Sender{}, err
	}
	if err := c.Check(); err != nil {
		return Sender{}, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// ParseReceiver reads a receiver's configuration as ParseSender does.
func ParseReceiver(r io.Reader, name string) (Receiver, error) {
	return newReceiver(func(e end) error { return parse(r, name, e) })
}

// ReceiverOf takes a receiver's configuration from its keys as SenderOf does.
func ReceiverOf(values map[string]string, name string) (Receiver, error) {
	return newReceiver(func(e end) error { return e.setAll(values, name) })
}

func newReceiver(read func(end) error) (Receiver, error) {
	c, other := DefaultReceiver(), Sender{}
	if err := read(end{c.fields(), other.fields(), "sender"}); err != nil {
		return Receiver{}, err
	}
	return c, nil
}

// AppendText appends all keys with their values, as ParseSender reads them.
func (c Sender) AppendText(b []byte) ([]byte, error) { return appendText(b, c.fields()), nil }

// AppendText appends all keys with their values, as ParseReceiver reads them.
func (c Receiver) AppendText(b []byte) ([]byte, error) { return appendText(b, c.fields()), nil }

func appendText(b []byte, fields []field) []byte {
	for _, f := range fields {
		if value := f.get(); value != "" {
			b = fmt.Appendf(b, "%s %s\n", f.Name, value)
		}
	}
	return b
}

// A field is a key with its place in a configuration.
type field struct {
	Key
	allowed string             // in words
	set     func(string) error // any error means: not allowed
	get     func() string      // "" if there is nothing to print
}

// An end has keys of its own, and knows those of the other.
type end struct {
	fields, others []field
	other          string
}

func (e end) set(key, value string) error {
	named := func(f field) bool { return f.Name == key }
	i := slices.IndexFunc(e.fields, named)
	switch {
	case i < 0 && slices.ContainsFunc(e.others, named):
		return fmt.Errorf("%s is a key of the %s", key, e.other)
	case i < 0:
		return fmt.Errorf("%q is no key; allowed are %s", key, keys(e.fields))
	case value == "":
		return fmt.Errorf("%s has no value; allowed is %s", key, e.fields[i].allowed)
	case e.fields[i].set(value) != nil:
		return fmt.Errorf("%s: found %q; allowed is %s", key, value, e.fields[i].allowed)
	}
	return nil
}

func (e end) setAll(values map[string]string, name string) error {
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if err := e.set(key, words(values[key])); err != nil {
			problems = append(problems, fmt.Errorf("%s.%w", name, err))
		}
	}
	return errors.Join(problems...)
}

func parse(r io.Reader, name string, e end) error {
	var problems []error
	line := 1
	wrong := func(err error) { problems = append(problems, fmt.Errorf("%s:%d: %w", name, line, err)) }
	lines := map[string]int{} // where a key has been set
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxLine)
	for ; scanner.Scan(); line++ {
		content, _, _ := strings.Cut(scanner.Text(), "#")
		key, value, _ := strings.Cut(words(content), " ")
		if key == "" {
			continue
		}
		if first := lines[key]; first > 0 {
			wrong(fmt.Errorf("%s stands in line %d already", key, first))
			continue
		}
		lines[key] = line
		if err := e.set(key, value); err != nil {
			wrong(err)
		}
	}
	if err := scanner.Err(); err != nil {
		wrong(fmt.Errorf("reading: %w", err))
	}
	return errors.Join(problems...)
}

// words are those of a text, with one space between them.
func words(s string) string { return strings.Join(strings.Fields(s), " ") }

func keys(fields []field) string {
	var all []string
	for _, f := range fields {
		all = append(all, f.Name)
	}
	return strings.Join(all, ", ")
}

var errRange = errors.New("out of range")

func text(key string, p *string) field {
	return field{Key{Name: key, Kind: "text"}, "one word",
		func(s string) error {
			if strings.Contains(s, " ") {
				return errRange
			}
			*p = s
			return nil
		},
		func() string { return *p }}
}

func number[T int | uint64](key string, p *T, low, high int64) field {
	return field{Key{Name: key, Kind: "integer", Min: low, Max: high}, fmt.Sprintf("a whole number from %d to %d", low, high),
		func(s string) error {
			v, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				return err
			}
			if v < low || v > high {
				return errRange
			}
			*p = T(v)
			return nil
		},
		func() string { return strconv.FormatInt(int64(*p), 10) }}
}

func real(key string, p *float64, low, high float64) field {
	return field{Key{Name: key, Kind: "number", Min: low, Max: high}, fmt.Sprintf("a number from %v to %v", low, high),
		func(s string) error {
			v, err := strconv.ParseFloat(s, 64)
			if err != nil {
				return err
			}
			if !(v >= low && v <= high) {
				return errRange
			}
			*p = v
			return nil
		},
		func() string { return strconv.FormatFloat(*p, 'g', -1, 64) }}
}

func seconds(key string, p *time.Duration, low, high float64) field {
	return duration(key, p, low, high, "s", time.Second)
}

func milliseconds(key string, p *time.Duration, low, high float64) field {
	return duration(key, p, low, high, "ms", time.Millisecond)
}

func microseconds(key string, p *time.Duration, low, high float64) field {
	return duration(key, p, low, high, "us", time.Microsecond)
}

func duration(key string, p *time.Duration, low, high float64, unit string, one time.Duration) field {
	var v float64
	f := real(key, &v, low, high)
	set := f.set
	f.allowed += " in " + unit
	f.set = func(s string) error {
		if err := set(s); err != nil {
			return err
		}
		*p = time.Duration(v*float64(one) + 0.5) // to the nearest ns
		return nil
	}
	f.get = func() string { return strconv.FormatFloat(float64(*p)/float64(one), 'g', -1, 64) }
	return f
}

func flag(key string, p *bool) field {
	return field{Key{Name: key, Kind: "integer", Min: 0, Max: 1}, "0 or 1",
		func(s string) error {
			if s != "0" && s != "1" {
				return errRange
			}
			*p = s == "1"
			return nil
		},
		func() string {
			if *p {
				return "1"
			}
			return "0"
		}}
}

func choice[T ~int](key string, p *T, names []string) field {
	return field{Key{Name: key, Kind: "choice", Choices: names}, "one of " + strings.Join(names, ", "),
		func(s string) error {
			i := slices.Index(names, s)
			if i < 0 {
				return errRange
			}
			*p = T(i)
			return nil
		},
		func() string { return names[*p] }}
}

func segments(key string, p *[]uint64) field {
	return field{Key{Name: key, Kind: "segments"}, "numbers of segments, from 0, with commas or spaces between them",
		func(s string) error {
			var all []uint64
			for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ',' || r == ' ' }) {
				v, err := strconv.ParseUint(part, 10, 63)
				if err != nil {
					return err
				}
				all = append(all, v)
			}
			if len(all) == 0 {
				return errRange
			}
			slices.Sort(all)
			*p = all
			return nil
		},
		func() string {
			var all []string
			for _, v := range *p {
				all = append(all, strconv.FormatUint(v, 10))
			}
			return strings.Join(all, ",")
		}}
}
