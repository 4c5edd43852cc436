package controller

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is what the running thread has used of a processor: unlike a
// clock it does not count what others do meanwhile.
func threadTime() time.Duration {
	var use unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &use); err != nil {
		panic(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
