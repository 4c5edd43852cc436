package broker

import (
	"errors"
	"time"
)

// Stats are those of this moment. To ask for them takes the same time however
// much the broker hosts.
func (b *Broker) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := &b.measured
	s := Stats{
		Registered: m.registered, BrokerEpoch: b.gate.BrokerEpoch(), ControllerEpoch: b.gate.ControllerEpoch(), SessionTTL: m.ttl,
		Registrations: m.registrations, Renewals: m.renewals, SessionFailures: m.failing,
		Streams: len(b.streams), Counts: b.gate.Counts(), Working: len(b.workers), Proposals: b.proposals.open,
		Refused: m.refusedBy(), Decided: m.decidedBy(),
		HandlerTime: m.handlers, Failed: m.failed, StorageFailed: m.storageFailed,
	}
	if !m.renewed.IsZero() {
		s.SinceRenewal = time.Since(m.renewed)
	}
	return s
}

// handled counts a call of the handler. It is called under the lock.
func (m *measured) handled(took time.Duration, err error) {
	m.handlers.Observe(took)
	if err != nil {
		m.failed++
	}
	if errors.Is(err, ErrStorage) {
		m.storageFailed++
	}
}

// renewedSession counts a registration or a renewal.
func (b *Broker) renewedSession(ttl time.Duration, registered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := &b.measured
	m.registered, m.renewed, m.ttl = true, time.Now(), ttl
	if registered {
		m.registrations++
	} else {
		m.renewals++
	}
}

// lostSession notes that an attempt has failed, or that the session is gone.
func (b *Broker) lostSession(gone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if gone {
		b.measured.registered = false
	} else {
		b.measured.failing++
	}
}
