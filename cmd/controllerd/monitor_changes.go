package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/internal/hook"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// changes notes the changes of controller in a file, and tells of those that
// have happened since the first look.
type changes struct {
	file *os.File // nil: none
	torn bool     // it does not end with a whole line
	tell func(hook.Change)

	uuid   string // of the cluster that last belongs to
	last   int64  // the epoch of the last term that is noted; 0: none
	looked bool
}

// maxChange bounds a line of the file, in bytes.
const maxChange = 1 << 20

// open goes on with a file, or begins one.
func (c *changes) open(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxChange)
	for lines.Scan() {
		var ch hook.Change
		if json.Unmarshal(lines.Bytes(), &ch) == nil && ch.Epoch != 0 {
			c.uuid, c.last = ch.ClusterUUID, ch.Epoch
		}
	}
	if err := lines.Err(); err != nil {
		return errors.Join(fmt.Errorf("history %s: %w", name, err), f.Close())
	}
	if size, err := f.Seek(0, io.SeekEnd); err == nil && size > 0 {
		var end [1]byte
		_, err = f.ReadAt(end[:], size-1)
		c.torn = err == nil && end[0] != '\n'
	}
	c.file = f
	return nil
}

// look asks a daemon for the terms that are new, if its answer shows one.
func (c *changes) look(ctx context.Context, admin pb.AdminServiceClient, now *pb.DescribeControllerResponse) error {
	if now.GetClusterUuid() == "" {
		return nil // the daemon has seen nothing yet
	}
	if c.uuid != now.GetClusterUuid() {
		c.uuid, c.last = now.GetClusterUuid(), 0
	}
	if now.GetEpoch() <= c.last {
		c.looked = true
		return nil
	}
	limit := int32(2) // the first is noted with the one before it
	if c.last != 0 {
		limit = int32(min(now.GetEpoch()-c.last+1, 1000))
	}
	resp, err := admin.ListTerms(ctx, &pb.ListTermsRequest{Limit: limit})
	if err != nil {
		return fmt.Errorf("history of terms: %s", status.Convert(err).Message())
	}
	return c.note(resp.GetTerms())
}

// note takes in terms, the newest first.
func (c *changes) note(terms []*pb.TermRecord) error {
	for i := len(terms) - 1; i >= 0; i-- {
		now := terms[i]
		if now.GetEpoch() <= c.last || c.last == 0 && i > 0 {
			continue
		}
		var before *pb.TermRecord
		if i+1 < len(terms) {
			before = terms[i+1]
		}
		ch := changeOf(c.uuid, now, before)
		if err := c.append(ch); err != nil {
			return err
		}
		c.last = ch.Epoch
		if c.looked {
			c.tell(ch)
		}
	}
	c.looked = true
	return nil
}

func (c *changes) append(ch hook.Change) error {
	if c.file == nil {
		return nil
	}
	line, err := json.Marshal(ch)
	if err != nil {
		return err
	}
	if c.torn {
		line = append([]byte("\n"), line...)
	}
	if _, err := c.file.Write(append(line, '\n')); err != nil {
		c.torn = true
		return fmt.Errorf("history: %w", err)
	}
	c.torn = false
	return nil
}
