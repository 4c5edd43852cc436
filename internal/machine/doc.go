// Package machine says where figures were taken, for reports of measurements.
package machine
