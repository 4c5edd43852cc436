package election

import "time"

// MarginWindow is for how long the least margin of a lease is remembered.
const MarginWindow = 10 * time.Minute

// margins remembers how little time was left, at the worst moments of the last
// minutes, until the holder of a lease would have had to give it up.
type margins struct {
	slots [10]struct {
		minute int64 // since the clock began, plus 1; 0: unused
		least  time.Duration
	}
}

const marginSlot = MarginWindow / time.Duration(len(margins{}.slots))

func (m *margins) note(now, left time.Duration) {
	minute := int64(now/marginSlot) + 1
	s := &m.slots[int(minute)%len(m.slots)]
	if s.minute != minute {
		s.minute, s.least = minute, left
	}
	s.least = min(s.least, left)
}

// least is false if nothing was noted in the last minutes.
func (m *margins) least(now time.Duration) (least time.Duration, known bool) {
	minute := int64(now/marginSlot) + 1
	for _, s := range m.slots {
		if s.minute == 0 || s.minute <= minute-int64(len(m.slots)) {
			continue
		}
		if !known || s.least < least {
			least, known = s.least, true
		}
	}
	return least, known
}

// Margin is how the lease of a daemon does.
type Margin struct {
	TTL time.Duration
	// Least is the least time that was left, in the last minutes, until
	// everything would have had to be given up; 0 or less: it had to.
	Least time.Duration
	// Usual is what is left at least if the store answers at once.
	Usual time.Duration
}

// Margin is false if no lease is held.
func (c *Candidate) Margin(now time.Duration) (Margin, bool) {
	if c.keeper == nil {
		return Margin{}, false
	}
	least, known := c.margins.least(now)
	ttl := c.keeper.ttl
	return Margin{TTL: ttl, Least: least, Usual: ttl - quietTime(ttl) - ttl/4}, known
}

// noteMargin is called whenever time has passed. While a lease is being given
// up it is not renewed any more.
func (c *Candidate) noteMargin(now time.Duration) {
	if c.phase == standby || c.phase == claiming || c.phase == active {
		c.margins.note(now, c.keeper.Quiet()-now)
	}
}
