package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// How soon and how often progress is told: nothing that is quick says a word.
const (
	barAfter  = 300 * time.Millisecond
	barEvery  = 100 * time.Millisecond
	lineAfter = 3 * time.Second
	lineEvery = 5 * time.Second
	barWidth  = 30
)

// progress tells on stderr how far long work has come: by a bar on a terminal,
// elsewhere by a line now and then.
type progress struct {
	w        io.Writer
	terminal bool
	next     time.Time
	shown    bool
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, terminal: isTerminal(w)}
	p.next = time.Now().Add(lineAfter)
	if p.terminal {
		p.next = time.Now().Add(barAfter)
	}
	return p
}

// update says that so much of the whole is done. A whole of 0 is not known.
func (p *progress) update(done, whole int64, what string) {
	now := time.Now()
	if now.Before(p.next) {
		return
	}
	if !p.terminal {
		p.next = now.Add(lineEvery)
		fmt.Fprintln(p.w, printable(counted(done, whole)+" "+what))
		return
	}
	p.next, p.shown = now.Add(barEvery), true
	line := []rune(bar(done, whole) + printable(counted(done, whole)+" "+what))
	fmt.Fprint(p.w, "\r\x1b[K"+string(line[:min(len(line), widthOf(p.w)-1)]))
}

// end removes the bar.
func (p *progress) end() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

func counted(done, whole int64) string {
	if whole <= 0 {
		return str(done)
	}
	return fmt.Sprintf("%d/%d", done, whole)
}

func bar(done, whole int64) string {
	if whole <= 0 {
		return ""
	}
	full := int(barWidth * min(max(done, 0), whole) / whole)
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "] "
}
