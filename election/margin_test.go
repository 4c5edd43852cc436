package election

import (
	"testing"
	"time"
)

func TestMarginsAreTheLeastOfTheLastMinutes(t *testing.T) {
	var m margins
	if _, known := m.least(time.Hour); known {
		t.Error("known before anything was noted")
	}
	start := 3*time.Hour + 59*time.Second
	for _, tt := range []struct {
		at, left, want time.Duration
	}{
		{0, 3, 3},
		{time.Second, 5, 3},
		{time.Minute, 1, 1},
		{2 * time.Minute, 4, 1},
		{9*time.Minute + time.Second, 4, 1},
		{11*time.Minute + time.Second, 6, 4}, // the 1 is 10 minutes old
		{11*time.Minute + 2*time.Second, -2, -2},
		{time.Hour, 7, 7},
	} {
		m.note(start+tt.at, tt.left)
		if got, known := m.least(start + tt.at); !known || got != tt.want {
			t.Errorf("after %v: %d, want %d", tt.at, got, tt.want)
		}
	}
	if _, known := m.least(start + 2*time.Hour); known {
		t.Error("known long after the last was noted")
	}
}
