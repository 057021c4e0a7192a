package tcpinfo

import (
	"errors"

	"dumbbell/collectors/row"
)

// final says that a row is a socket's last state, sent when it was destroyed.
const final = "final"

// An Extension knows more of sockets, by their cookies, than tcp_info does.
type Extension interface {
	// AddFields writes what it knows of a socket to a row.
	AddFields(cookie uint64, rows *row.Rows) error
	// Forget says that a socket has ended and its last row is written.
	Forget(cookie uint64) error
	// Sweep forgets sockets of whose end nothing was heard: those that were not
	// alive at the sweep before and are not now.
	Sweep(alive func(cookie uint64) bool) error
	Close() error
}

type nothing struct{}

func (nothing) AddFields(uint64, *row.Rows) error { return nil }
func (nothing) Forget(uint64) error               { return nil }
func (nothing) Sweep(func(uint64) bool) error     { return nil }
func (nothing) Close() error                      { return nil }

// addAll writes all that is known of a socket to a row: of one that has ended
// for the last time.
func addAll(rows *row.Rows, s *Sample, more Extension, ended bool) error {
	s.AddFields(rows)
	err := more.AddFields(s.Cookie, rows)
	if ended {
		rows.Bool(final, true)
		err = errors.Join(err, more.Forget(s.Cookie))
	}
	return err
}
