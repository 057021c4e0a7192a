package plan

import (
	"regexp"
	"slices"
	"strings"
)

// tcWord is a word of a tc command that needs no quoting in a batch.
var tcWord = regexp.MustCompile(`^[^\s"'#\\]+$`)

// Batchable reports whether commands can be the input of "tc -batch -".
func Batchable(commands [][]string) bool {
	for _, words := range commands {
		if len(words) == 0 || slices.ContainsFunc(words, func(word string) bool { return !tcWord.MatchString(word) }) {
			return false
		}
	}
	return true
}

// Batch is the input of "tc -batch -".
func Batch(commands [][]string) string {
	var b strings.Builder
	for _, words := range commands {
		b.WriteString(strings.Join(words, " ") + "\n")
	}
	return b.String()
}
