// Package check holds the tests of what lies in deploy and of the Dockerfile,
// in a module of its own: nobody who builds controllerd needs what they need.
package check
