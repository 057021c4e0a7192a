// Package handshake opens a flow of atou: both ends prove that they have the
// same token, and the sender that it is at its address, before any state is
// made or data sent. It has no sockets and no clock.
//
//	sender                              receiver
//	Hello{nonce}                ->                                  silent without the right MAC
//	                            <-      Challenge{nonce, cookie}    no longer than the hello; keeps nothing
//	Open{nonce, cookie, text}   ->                                  the cookie is fresh and of that address
//	                            <-      Accept{nonce, ID, text}     or Refuse{nonce, text}
//
// Each message ends in an HMAC-SHA256 over all before it, its type included,
// with the token as the key: the token is never on the wire. The sender's nonce
// is random, and in all messages, so none of an earlier handshake serves again.
package handshake

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"dumbbell/transports/atou/proto"
)

const (
	nonceBytes  = 16
	cookieBytes = 8 + macBytes
	macBytes    = sha256.Size

	textAt      = proto.PrefixBytes + nonceBytes
	openTextAt  = textAt + cookieBytes + 1
	helloBytes  = 128 // padded: an answer is not longer
	answerBytes = textAt + cookieBytes + macBytes
)

// MaxText bounds the text of a message, so that none is fragmented.
const MaxText = 1100

// MaxBytes is the size of the largest message.
const MaxBytes = openTextAt + MaxText + macBytes

// CookieLife is how long an answer to a challenge is taken.
const CookieLife = 10 * time.Second

var (
	errMAC   = errors.New("not authentic: of another token, or damaged")
	errStale = errors.New("the cookie is too old, of another address or of another receiver")
)

// A Nonce is a sender's random number for one flow.
type Nonce [nonceBytes]byte

// NewNonce makes one.
func NewNonce() (n Nonce) {
	rand.Read(n[:])
	return n
}

// A Cookie is what a receiver would otherwise have to remember of a sender
// that has not yet shown its address.
type Cookie [cookieBytes]byte

// Issued is when the cookie was made, of the receiver's clock.
func (c *Cookie) Issued() time.Duration { return time.Duration(binary.BigEndian.Uint64(c[:])) }

// A Baker makes a receiver's cookies and knows them again.
type Baker struct{ secret [32]byte }

// NewBaker makes one whose cookies no other knows.
func NewBaker() *Baker {
	b := new(Baker)
	rand.Read(b.secret[:])
	return b
}

// Bake makes the cookie of a sender at an address.
func (b *Baker) Bake(now time.Duration, from netip.AddrPort, n Nonce) (c Cookie) {
	binary.BigEndian.PutUint64(c[:], uint64(now))
	mac := hmac.New(sha256.New, b.secret[:])
	mac.Write(c[:8])
	mac.Write(n[:])
	address, _ := from.MarshalBinary() // of an address without a name of a zone it is never an error
	mac.Write(address)
	mac.Sum(c[:8])
	return c
}

// Check fails unless the cookie was made for this sender, and not long ago.
func (b *Baker) Check(now time.Duration, from netip.AddrPort, n Nonce, c *Cookie) error {
	issued := c.Issued()
	if want := b.Bake(issued, from, n); !hmac.Equal(want[:], c[:]) || now < issued || now-issued > CookieLife {
		return errStale
	}
	return nil
}

// AppendHello appends a sender's first message.
func (t *Token) AppendHello(b []byte, n Nonce) []byte {
	start := len(b)
	b = begin(b, proto.TypeHello, proto.ID{}, n)
	b = append(b, make([]byte, helloBytes-macBytes-(len(b)-start))...)
	return t.seal(b, start)
}

// ReadHello reads it.
func (t *Token) ReadHello(b []byte) (Nonce, error) {
	_, n, body, err := t.unseal(b, proto.TypeHello)
	if err == nil && (len(b) != helloBytes || len(bytes.Trim(body, "\x00")) > 0) {
		err = fmt.Errorf("a hello of %d bytes, or not padded with zeros", len(b))
	}
	return n, err
}

// AppendChallenge appends a receiver's answer to a hello.
func (t *Token) AppendChallenge(b []byte, n Nonce, c *Cookie) []byte {
	start := len(b)
	b = begin(b, proto.TypeChallenge, proto.ID{}, n)
	return t.seal(append(b, c[:]...), start)
}

// ReadChallenge reads the answer to the hello with a nonce.
func (t *Token) ReadChallenge(b []byte, want Nonce) (c Cookie, err error) {
	_, n, body, err := t.unseal(b, proto.TypeChallenge)
	switch {
	case err != nil:
		return c, err
	case len(b) != answerBytes:
		return c, fmt.Errorf("a challenge of %d bytes", len(b))
	case n != want:
		return c, errMAC
	}
	copy(c[:], body)
	return c, nil
}

// An Open asks for a flow.
type Open struct {
	Nonce  Nonce
	Cookie Cookie
	Bulk   bool   // segments come in trains: the receiver takes and acknowledges them so
	Text   string // configuration of the sender, for the receiver to record
}

// AppendOpen appends the message.
func (t *Token) AppendOpen(b []byte, o *Open) ([]byte, error) {
	if len(o.Text) > MaxText {
		return nil, fmt.Errorf("a configuration of %d bytes; a greeting takes %d", len(o.Text), MaxText)
	}
	start := len(b)
	b = append(begin(b, proto.TypeOpen, proto.ID{}, o.Nonce), o.Cookie[:]...)
	var bulk byte
	if o.Bulk {
		bulk = 1
	}
	return t.seal(append(append(b, bulk), o.Text...), start), nil
}

// ReadOpen reads the message; its cookie is for a Baker to check.
func (t *Token) ReadOpen(b []byte) (o Open, err error) {
	_, n, body, err := t.unseal(b, proto.TypeOpen)
	if err != nil {
		return o, err
	}
	if len(body) < cookieBytes+1 || len(body) > cookieBytes+1+MaxText || body[cookieBytes] > 1 {
		return o, fmt.Errorf("an opening of %d bytes", len(b))
	}
	copy(o.Cookie[:], body)
	o.Nonce, o.Bulk, o.Text = n, body[cookieBytes] == 1, string(body[cookieBytes+1:])
	return o, nil
}

// An Answer is what becomes of an Open.
type Answer struct {
	Nonce   Nonce
	ID      proto.ID // of the flow; none if it is refused
	Refused bool
	Text    string // configuration of the receiver, or why it refuses
}

// AppendAnswer appends the message; a text that is too long is cut.
func (t *Token) AppendAnswer(b []byte, a *Answer) []byte {
	start := len(b)
	kind := proto.TypeAccept
	if a.Refused {
		kind = proto.TypeRefuse
	}
	b = begin(b, kind, a.ID, a.Nonce)
	return t.seal(append(b, a.Text[:min(len(a.Text), MaxText)]...), start)
}

// ReadAnswer reads the answer to the opening with a nonce.
func (t *Token) ReadAnswer(b []byte, want Nonce) (Answer, error) {
	kind, _, err := proto.Peek(b)
	if err != nil {
		return Answer{}, err
	}
	if kind != proto.TypeAccept && kind != proto.TypeRefuse {
		return Answer{}, fmt.Errorf("type %d is no answer", kind)
	}
	id, n, body, err := t.unseal(b, kind)
	switch {
	case err != nil:
		return Answer{}, err
	case n != want:
		return Answer{}, errMAC
	case len(body) > MaxText:
		return Answer{}, fmt.Errorf("an answer of %d bytes", len(b))
	}
	return Answer{n, id, kind == proto.TypeRefuse, string(body)}, nil
}

func begin(b []byte, kind proto.Type, id proto.ID, n Nonce) []byte {
	var prefix [proto.PrefixBytes]byte
	proto.PutPrefix(prefix[:], kind, id)
	return append(append(b, prefix[:]...), n[:]...)
}

// seal appends the MAC of what begins at start.
func (t *Token) seal(b []byte, start int) []byte { return t.sum(b, b[start:]) }

func (t *Token) sum(b, message []byte) []byte {
	mac := hmac.New(sha256.New, t.key[:])
	mac.Write(message)
	return mac.Sum(b)
}

// unseal returns the parts of a message of a type whose MAC is right.
func (t *Token) unseal(b []byte, want proto.Type) (id proto.ID, n Nonce, body []byte, err error) {
	kind, id, err := proto.Peek(b)
	switch {
	case err != nil:
		return id, n, nil, err
	case kind != want:
		return id, n, nil, fmt.Errorf("type %d, not %d", kind, want)
	case len(b) < textAt+macBytes || len(b) > MaxBytes:
		return id, n, nil, fmt.Errorf("a greeting of %d bytes", len(b))
	}
	signed := b[:len(b)-macBytes]
	if !hmac.Equal(t.sum(nil, signed), b[len(signed):]) {
		return id, n, nil, errMAC
	}
	copy(n[:], signed[proto.PrefixBytes:])
	return id, n, signed[textAt:], nil
}
