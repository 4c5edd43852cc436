//go:build !linux

package controller

import "time"

var began = time.Now()

// threadTime is a clock where the time of one thread is not to be had.
func threadTime() time.Duration { return time.Since(began) }
