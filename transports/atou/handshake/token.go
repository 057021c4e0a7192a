package handshake

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
)

const (
	minTokenBytes = 16
	maxTokenBytes = 4096
)

// A Token is the secret that both ends share.
type Token struct{ key [sha256.Size]byte }

// NewToken makes a token of a secret.
func NewToken(secret []byte) *Token { return &Token{sha256.Sum256(secret)} }

// String keeps the token out of logs.
func (*Token) String() string { return "token" }

// ReadToken reads a token from a file that none but its owner may read. White
// space around it does not count. What is in the file is not in the error.
func ReadToken(path string) (*Token, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the token: %w; one is made by: (umask 077; head -c 32 /dev/urandom | base64 > %s)", err, path)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the token: %w", err)
	}
	if mode := info.Mode(); !mode.IsRegular() || mode.Perm()&0o077 != 0 {
		return nil, fmt.Errorf("reading the token: %s has mode %v, but others must not read it: chmod 600 %[1]s", path, mode)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxTokenBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the token: %w", err)
	}
	secret := bytes.TrimSpace(content)
	if len(secret) < minTokenBytes || len(content) > maxTokenBytes {
		return nil, fmt.Errorf("reading the token: %s has %d bytes; a token has %d to %d, and they should be random", path, len(secret), minTokenBytes, maxTokenBytes)
	}
	return NewToken(secret), nil
}
