// Package records shows the records stored in etcd as JSON, and reads them
// back.
//
// The JSON is protobuf's own mapping, with the names of the .proto files and
// every field, also those with their default. What a record has beside, of a
// newer version, JSON cannot show: it is named apart, and kept by KeepUnknown.
package records
