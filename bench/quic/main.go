// Quic sends zeros over one stream of QUIC on loopback, for some seconds, and
// prints how many bits a second its receiver had of them.
package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"os"
	"time"

	"github.com/quic-go/quic-go"
)

const protocol = "bulk"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: quic serve|DURATION  a receiver prints its address, then of each transfer its bit/s; a sender gets the address as input")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "quic:", err)
		os.Exit(1)
	}
}

func run(what string) error {
	if what == "serve" {
		return receive()
	}
	duration, err := time.ParseDuration(what)
	if err != nil {
		return err
	}
	var address string
	if _, err := fmt.Scan(&address); err != nil {
		return err
	}
	return send(address, duration)
}

// config has windows that loopback does not fill.
func config() *quic.Config {
	return &quic.Config{InitialStreamReceiveWindow: 16 << 20, MaxStreamReceiveWindow: 64 << 20, InitialConnectionReceiveWindow: 16 << 20, MaxConnectionReceiveWindow: 64 << 20}
}

func receive() error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return err
	}
	listener, err := quic.ListenAddr("127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: private}}, NextProtos: []string{protocol},
	}, config())
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	for {
		conn, err := listener.Accept(context.Background())
		if err != nil {
			return err
		}
		stream, err := conn.AcceptUniStream(context.Background())
		if err != nil {
			return err
		}
		start := time.Now()
		n, err := io.CopyBuffer(io.Discard, onlyReader{stream}, make([]byte, 1<<20))
		if err != nil {
			return err
		}
		fmt.Println(float64(n) * 8 / time.Since(start).Seconds())
		conn.CloseWithError(0, "")
	}
}

// onlyReader keeps io.CopyBuffer to its buffer.
type onlyReader struct{ io.Reader }

func send(address string, duration time.Duration) error {
	// The receiver is of this machine, and its certificate of this moment.
	conn, err := quic.DialAddr(context.Background(), address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}, config())
	if err != nil {
		return err
	}
	stream, err := conn.OpenUniStream()
	if err != nil {
		return err
	}
	zeros := make([]byte, 1<<20)
	for start := time.Now(); time.Since(start) < duration; {
		if _, err := stream.Write(zeros); err != nil {
			return err
		}
	}
	if err := stream.Close(); err != nil {
		return err
	}
	<-conn.Context().Done() // the receiver has all, and closes
	return nil
}
