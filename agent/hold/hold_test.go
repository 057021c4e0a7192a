package hold

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock.json")
	until := time.Now().Add(time.Minute)
	mine := Host{RunID: "mine", Owner: "me@here", UntilUnixNs: until.UnixNano()}
	for range 2 { // a run may take what it has
		if err := Take(path, mine); err != nil {
			t.Fatal(err)
		}
	}
	other := Host{RunID: "other", Owner: "you@there", UntilUnixNs: until.Add(time.Hour).UnixNano()}
	err := Take(path, other)
	if err == nil || !strings.Contains(err.Error(), "run mine of me@here until "+until.UTC().Format(time.RFC3339)) {
		t.Errorf("a second run is refused with %v", err)
	}
	if err := Release(path, "other"); err != nil {
		t.Fatal(err)
	}
	if err := Take(path, other); err == nil {
		t.Error("another run has released the host")
	}
	// A phase keeps the host longer and knows no owner.
	if err := Take(path, Host{RunID: "mine", UntilUnixNs: until.Add(time.Minute).UnixNano()}); err != nil {
		t.Fatal(err)
	}
	if err := Take(path, other); err == nil || !strings.Contains(err.Error(), "me@here") {
		t.Errorf("the owner is forgotten: %v", err)
	}
	if err := Release(path, "mine"); err != nil {
		t.Fatal(err)
	}
	if err := Take(path, other); err != nil {
		t.Error(err)
	}
}

func TestLockThatHoldsNothing(t *testing.T) {
	later := time.Now().Add(time.Hour).UnixNano()
	for name, content := range map[string]string{
		"expired":      fmt.Sprintf(`{"run_id": "old", "until_unix_ns": %d, "boot_id": %q}`, time.Now().Add(-time.Second).UnixNano(), bootID()),
		"another boot": fmt.Sprintf(`{"run_id": "old", "until_unix_ns": %d, "boot_id": "other"}`, later),
		"cut short":    `{"run_id": "old", "unti`,
		"empty":        "",
		"free":         `{"run_id": "", "until_unix_ns": 0}` + "\n" + `old"}`, // behind it, what was there before
	} {
		path := filepath.Join(t.TempDir(), "lock.json")
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := Take(path, Host{RunID: "new", UntilUnixNs: later}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
