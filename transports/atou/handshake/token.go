package handshake

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
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
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe would wait for who writes
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the token: %w; one is made on one host, (umask 077; head -c 32 /dev/urandom | base64 > %s), and copied to the other", err, path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the token: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the token: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("reading the token: %s is no regular file", path)
	}
	if mode := info.Mode(); mode.Perm()&0o077 != 0 {
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
