package hook

import (
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
)

// Target is a command or a URL, as one flag gives it. The zero Target is none.
type Target struct {
	text string
	args []string // of the command, its path first
	url  *url.URL
}

// Given reports whether there is one.
func (t *Target) Given() bool { return t.text != "" }

// Set reads a Target. What begins with http:// or https:// is a URL, all else a
// command: words at blanks, unless '...' or "..." hold them together. No shell
// reads it; whoever wants one says sh -c '...'. The command must exist.
func (t *Target) Set(s string) error {
	*t = Target{}
	if strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://") {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" {
			return errors.New("not a URL that can be posted to") // it may hold a secret
		}
		*t = Target{text: s, url: u}
		return nil
	}
	args, err := words(s)
	if err != nil || len(args) == 0 {
		return err
	}
	if args[0], err = exec.LookPath(args[0]); err != nil {
		return err
	}
	*t = Target{text: s, args: args}
	return nil
}

// String is what was set; of a URL not what may be a secret.
func (t *Target) String() string {
	if t.url == nil {
		return t.text
	}
	shown := t.url.Scheme + "://" + t.url.Host
	if t.url.User != nil || t.url.RawQuery != "" || strings.Trim(t.url.Path, "/") != "" {
		shown += "/********"
	}
	return shown
}

// Type is what help calls the value.
func (t *Target) Type() string { return "command|URL" }

// words splits a command line.
func words(s string) ([]string, error) {
	var out []string
	var word strings.Builder
	var quote rune // 0: outside of quotes
	begun := false
	for _, r := range s {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, begun = r, true
		case quote == 0 && (r == ' ' || r == '\t' || r == '\n'):
			if begun {
				out = append(out, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quote %c is not closed", quote)
	}
	if begun {
		out = append(out, word.String())
	}
	return out, nil
}
