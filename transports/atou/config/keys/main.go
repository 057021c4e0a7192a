// Keys writes the keys of atou's configurations as JSON into a file, for the
// models of scenarios: `go generate ./transports/atou/config`.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"dumbbell/transports/atou/config"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: keys FILE")
		os.Exit(2)
	}
	b, err := json.MarshalIndent(config.AllKeys(), "", "  ")
	if err == nil {
		err = os.WriteFile(os.Args[1], append(b, '\n'), 0o644)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "keys: %v\n", err)
		os.Exit(1)
	}
}
