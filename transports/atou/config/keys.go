package config

// A Key is what a configuration may have, for who writes one.
type Key struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind"` // integer, number, choice, segments or text
	Min     any      `json:"min,omitempty"`
	Max     any      `json:"max,omitempty"`
	Choices []string `json:"choices,omitempty"`
	Default string   `json:"default,omitempty"` // as a configuration has it
}

// Keys are those of both ends.
type Keys struct {
	Sender   []Key `json:"sender"`
	Receiver []Key `json:"receiver"`
}

//go:generate go run ./keys ../../../src/dumbbell/scenario/atou.json

// AllKeys tells the keys of both ends in the order in which they are printed.
func AllKeys() Keys {
	sender, receiver := DefaultSender(), DefaultReceiver()
	return Keys{known(sender.fields()), known(receiver.fields())}
}

func known(fields []field) (all []Key) {
	for _, f := range fields {
		f.Key.Default = f.get()
		all = append(all, f.Key)
	}
	return all
}
