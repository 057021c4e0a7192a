// Atou is almost TCP over UDP: a transfer whose congestion control is a file
// of settings, and all of whose steps can be seen (transports/atou/README.md).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/simulate"
)

var version = "unknown" // set by the linker: -X main.version=...

const usage = `usage: atou send --token-file FILE [flags] CONFIG    send to the host that CONFIG names; --help tells the flags
       atou serve --token-file FILE [flags] CONFIG   receive until SIGTERM
       atou simulate [flags] [REQUEST]               both ends over an emulated path in virtual time; --help tells how to ask
       atou version

exit status: 0 done, 1 failed, 2 wrong usage
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// errUsage is a wrong usage that has been explained.
var errUsage = errors.New("wrong usage")

func run(args []string, stdout, stderr io.Writer) int {
	commands := map[string]func(context.Context, []string, io.Writer, io.Writer) error{"send": send, "serve": serve}
	if len(args) == 1 && args[0] == "version" {
		fmt.Fprintln(stdout, version)
		return 0
	}
	if len(args) == 1 && slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		fmt.Fprint(stdout, usage)
		return 0
	}
	if len(args) > 0 && args[0] == "simulate" { // signals end it as they end any program
		return simulate.Main(args[1:], os.Stdin, stdout, stderr)
	}
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprint(stderr, usage)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	switch err := commands[args[0]](ctx, args[1:], stdout, stderr); {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2
	default:
		fmt.Fprintf(stderr, "atou %s: %s\n", args[0], strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
}

// parse reads the flags of a command, whose one argument is a configuration.
func parse(flags *flag.FlagSet, args []string, stderr io.Writer) (path string, err error) {
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintf(stderr, "usage: atou %s --token-file FILE [flags] CONFIG\n", flags.Name())
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return "", err
	} else if err != nil {
		return "", errUsage
	}
	if flags.NArg() != 1 {
		fmt.Fprintf(stderr, "atou %s: one file of a configuration is wanted after the flags, %d were given: %q\n", flags.Name(), flags.NArg(), flags.Args())
		return "", errUsage
	}
	if flags.Lookup("token-file").Value.String() == "" {
		fmt.Fprintf(stderr, "atou %s: --token-file is missing: both ends share a secret\n", flags.Name())
		return "", errUsage
	}
	return flags.Arg(0), nil
}

// load reads a configuration with one of package config's parsers.
func load[C config.Sender | config.Receiver](path string, parse func(io.Reader, string) (C, error)) (c C, err error) {
	f, err := os.Open(path)
	if err != nil {
		return c, fmt.Errorf("reading the configuration: %w", err)
	}
	defer f.Close()
	return parse(f, path)
}

// parseAddress reads an address with or without a port, which is 0 then.
func parseAddress(s string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return netip.AddrPortFrom(a, 0), nil
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return a, fmt.Errorf("%q is neither an address nor an address and a port, such as 10.0.0.1:4000 or [::1]:4000", s)
	}
	return a, nil
}

// tellBuffer says of a socket's buffer that the kernel gave less than was asked.
func tellBuffer(stderr io.Writer, command, key string, asked, given int, limit string) {
	if given < asked {
		fmt.Fprintf(stderr, "atou %s: %s: asked %d, the kernel gave %d: %s\n", command, key, asked, given, limit)
	}
}
