package handshake

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dumbbell/transports/atou/proto"

	"pgregory.net/rapid"
)

var (
	token = NewToken([]byte("of these tests, and of no other"))
	here  = netip.MustParseAddrPort("10.0.0.1:4000")
)

func TestFlowIsOpened(t *testing.T) {
	for _, from := range []netip.AddrPort{here, netip.MustParseAddrPort("[fe80::1%eth0]:4000")} {
		baker, nonce := NewBaker(), NewNonce()
		hello := token.AppendHello(nil, nonce)
		asked, err := token.ReadHello(hello)
		if err != nil || asked != nonce {
			t.Fatalf("%v, %v", asked, err)
		}
		cookie := baker.Bake(time.Hour, from, asked)
		challenge := token.AppendChallenge(nil, asked, &cookie)
		if len(challenge) > len(hello) {
			t.Errorf("a stranger is sent %d bytes for %d", len(challenge), len(hello))
		}
		got, err := token.ReadChallenge(challenge, nonce)
		if err != nil || got != cookie || got.Issued() != time.Hour {
			t.Fatalf("%v, %v", got, err)
		}
		want := Open{Nonce: nonce, Cookie: got, Bulk: true, Text: "mss 1460\n"}
		b, err := token.AppendOpen(nil, &want)
		if err != nil {
			t.Fatal(err)
		}
		open, err := token.ReadOpen(b)
		if err != nil || open != want {
			t.Fatalf("%+v, %v", open, err)
		}
		if err := baker.Check(time.Hour+CookieLife, from, open.Nonce, &open.Cookie); err != nil {
			t.Error(err)
		}
	}
}

func TestCookieOfAnother(t *testing.T) {
	baker, nonce := NewBaker(), NewNonce()
	cookie := baker.Bake(time.Minute, here, nonce)
	later := cookie
	later[7]++
	for name, err := range map[string]error{
		"old":              baker.Check(time.Minute+CookieLife+1, here, nonce, &cookie),
		"to come":          baker.Check(time.Minute-1, here, nonce, &cookie),
		"another address":  baker.Check(time.Minute, netip.MustParseAddrPort("10.0.0.2:4000"), nonce, &cookie),
		"another port":     baker.Check(time.Minute, netip.MustParseAddrPort("10.0.0.1:4001"), nonce, &cookie),
		"another nonce":    baker.Check(time.Minute, here, NewNonce(), &cookie),
		"another receiver": NewBaker().Check(time.Minute, here, nonce, &cookie),
		"another time":     baker.Check(time.Minute+1, here, nonce, &later),
	} {
		if err == nil {
			t.Errorf("a cookie is taken that is of %s", name)
		}
	}
}

// messages has one of each kind, by a token.
func messages(with *Token, n Nonce) map[string][]byte {
	cookie := new(Baker).Bake(0, here, n) // the same in each process that fuzzes
	open, _ := with.AppendOpen(nil, &Open{Nonce: n, Cookie: cookie, Text: "mss 1460\n"})
	return map[string][]byte{
		"hello": with.AppendHello(nil, n), "challenge": with.AppendChallenge(nil, n, &cookie), "open": open,
		"accept": with.AppendAnswer(nil, &Answer{Nonce: n, ID: proto.ID{Flow: 1, Tag: 2}, Text: "sack 1\n"}),
		"refuse": with.AppendAnswer(nil, &Answer{Nonce: n, Refused: true, Text: "too many"}),
	}
}

func readers(n Nonce) map[string]func([]byte) error {
	return map[string]func([]byte) error{
		"hello":     func(b []byte) error { _, err := token.ReadHello(b); return err },
		"challenge": func(b []byte) error { _, err := token.ReadChallenge(b, n); return err },
		"open":      func(b []byte) error { _, err := token.ReadOpen(b); return err },
		"accept":    func(b []byte) error { _, err := token.ReadAnswer(b, n); return err },
	}
}

func TestOnlyWhatIsAuthenticIsRead(t *testing.T) {
	n := NewNonce()
	read := readers(n)
	read["refuse"] = read["accept"]
	strange, fresh := messages(NewToken([]byte("another token, as long as it")), n), messages(token, NewNonce())
	for name, b := range messages(token, n) {
		if bytes.Contains(b, token.key[:]) {
			t.Errorf("%s has the key in it", name)
		}
		if err := read[name](b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i := range len(b) * 8 {
			damaged := bytes.Clone(b)
			damaged[i/8] ^= 1 << (i % 8)
			if read[name](damaged) == nil {
				t.Errorf("%s is read though bit %d of byte %d is wrong", name, i%8, i/8)
			}
		}
		for i := range b {
			if read[name](b[:i]) == nil {
				t.Errorf("%s is read though it ends at byte %d", name, i)
			}
		}
		if read[name](strange[name]) == nil {
			t.Errorf("%s of another token is read", name)
		}
		if answers := name != "hello" && name != "open"; answers && read[name](fresh[name]) == nil {
			t.Errorf("%s to another nonce is read", name)
		}
		for other, r := range read {
			if (other == name) != (r(b) == nil) && !(other+name == "acceptrefuse" || other+name == "refuseaccept") {
				t.Errorf("%s is read as %s", name, other)
			}
		}
	}
}

func TestAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := NewNonce()
		want := Answer{
			Nonce: n, ID: proto.ID{Flow: rapid.Uint16().Draw(t, "flow"), Tag: rapid.Uint32().Draw(t, "tag")},
			Refused: rapid.Bool().Draw(t, "refused"), Text: rapid.StringN(0, MaxText, MaxText).Draw(t, "text"),
		}
		if got, err := token.ReadAnswer(token.AppendAnswer(nil, &want), n); err != nil || got != want {
			t.Fatalf("%+v, %v; want %+v", got, err, want)
		}
	})
	long := strings.Repeat("x", MaxText+1)
	if _, err := token.AppendOpen(nil, &Open{Text: long}); err == nil {
		t.Error("an opening of any length is sent")
	}
	n := NewNonce()
	b := token.AppendAnswer(nil, &Answer{Nonce: n, Refused: true, Text: long})
	if got, err := token.ReadAnswer(b, n); err != nil || got.Text != long[:MaxText] || len(b) > MaxBytes {
		t.Errorf("%d bytes of text in %d, %v", len(got.Text), len(b), err)
	}
}

func TestTokenFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // whatever the umask
			t.Fatal(err)
		}
		return path
	}
	secret := "0123456789abcdef"
	got, err := ReadToken(write("good", secret+"\n", 0o600))
	if err != nil || *got != *NewToken([]byte(secret)) {
		t.Errorf("%v", err)
	}
	for want, path := range map[string]string{
		"no such file or directory; one is made on one host, (umask": filepath.Join(dir, "none"),
		"chmod 600":          write("group", secret, 0o640),
		"others must not":    write("others", secret, 0o604),
		"is no regular file": dir,
		"has 15 bytes":       write("short", secret[1:]+"\n\n\n", 0o600),
		"has 4097 bytes":     write("long", strings.Repeat("x", 5000)+secret, 0o600),
	} {
		_, err := ReadToken(path)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "cdef") {
			t.Errorf("%s: %v does not say %q", path, err, want)
		}
	}
	// Nobody is told to make anew what is there.
	if _, err := ReadToken(filepath.Join(dir, "good", "below")); err == nil || strings.Contains(err.Error(), "urandom") {
		t.Error(err)
	}
}

// FuzzRead checks that nothing but the messages of the seeds is read, for none
// else has the token.
func FuzzRead(f *testing.F) {
	n := Nonce{1}
	known := messages(token, n)
	for _, b := range known {
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	f.Add([]byte("ato\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, read := range readers(n) {
			if read(b) != nil {
				continue
			}
			if !bytes.Equal(b, known[name]) && !(name == "accept" && bytes.Equal(b, known["refuse"])) {
				t.Errorf("%x is read as %s", b, name)
			}
		}
	})
}
