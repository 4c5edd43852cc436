// Package cluster is the state of one cluster as the controller knows it: ids,
// records, the layout of keys, the codec, and the Image that a watch builds.
//
// It owns the meaning of every key under the cluster's prefix. It promises
// that an Image is a function of the batches applied to it, that fields it
// does not know survive a rewrite, and that a key it cannot read is skipped
// and named in Faults, with everything else untouched. It does not decide
// anything and does not promise that the image is current: Rev says how old it
// is.
package cluster
