package main

import "sync"

// hold keeps back one message: the first that fits after it was armed.
type hold struct {
	caught  chan struct{} // closed when the message is here
	release chan struct{} // closed when it may go on

	mu    sync.Mutex
	armed bool
}

func newHold() *hold {
	return &hold{caught: make(chan struct{}), release: make(chan struct{})}
}

func (h *hold) arm() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.armed = true
}

// take reports whether a message that fits is the one to keep back.
func (h *hold) take() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	took := h.armed
	h.armed = false
	if took {
		close(h.caught)
	}
	return took
}

// wait returns when the message may go on.
func (h *hold) wait() { <-h.release }

// letGo may be called once.
func (h *hold) letGo() { close(h.release) }
