package lab

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/sim/pcc"
)

// Paced answers: so many chunks of chunkBytes at equal distances, the last one
// at the end of a given time. It is what the servers of Cheetah's figure 9
// send.

// chunkBytes is a chunk's length. len(pattern) is a multiple of it.
const chunkBytes = pcc.ChunkBytes

// Bounds of a paced answer.
const (
	maxChunks       = 1 << 20
	maxPacedSeconds = 3600
)

// Paced is one planned connection with a paced answer.
type Paced struct {
	// At is its start, seconds from the load's.
	At float64 `json:"at"`
	// Seconds is how long the answer takes, 0 to maxPacedSeconds.
	Seconds float64 `json:"seconds"`
	// Chunks of the answer, 0 to maxChunks. With 0 it is empty, and ends after
	// Seconds all the same.
	Chunks int `json:"chunks"`
}

// Second counts the connections of one target that ended within one second of
// the load.
type Second struct {
	Completed int `json:"completed"`
	// Broken or lost with their server.
	Broken int `json:"broken"`
}

// schedulePaced makes jobs of the plan's paced connections.
func (p LoadPlan) schedulePaced() (jobs []job) {
	for _, c := range p.Paced {
		jobs = append(jobs, job{kind: "paced", at: seconds(c.At), length: seconds(c.Seconds), chunks: c.Chunks})
	}
	return jobs
}

// endedIn counts a connection in the second of its end. The caller holds the
// lock.
func (l *load) endedIn(target string, j job, broken bool) {
	at := time.Since(l.start)
	n := int(at / time.Second)
	for len(l.perSecond[target]) <= n {
		l.perSecond[target] = append(l.perSecond[target], Second{})
	}
	if s := &l.perSecond[target][n]; broken {
		s.Broken++
	} else {
		s.Completed++
		l.latestEnd = max(l.latestEnd, at-j.at-j.length)
	}
}

// paced asks for a paced answer and compares what comes.
func (c *connection) paced(j job) error {
	answer, err := c.request("GET", fmt.Sprintf("/paced?seconds=%g&chunks=%d", j.length.Seconds(), j.chunks), nil)
	if err != nil {
		return err
	}
	c.answered()
	patience := j.length/time.Duration(max(j.chunks, 1)) + answerTimeout
	chunk := make([]byte, chunkBytes)
	for i := range j.chunks {
		c.expect(patience)
		if _, err := io.ReadFull(answer.Body, chunk); err != nil {
			return fmt.Errorf("read chunk %d of %d: %w", i, j.chunks, err)
		}
		if want := pattern[i*chunkBytes%len(pattern):]; string(chunk) != string(want[:chunkBytes]) {
			return fmt.Errorf("wrong bytes: %.60q instead of %.60q", chunk, want)
		}
	}
	c.expect(patience)
	if n, err := answer.Body.Read(chunk); n > 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("await the answer's end: %d bytes more, %w", n, err)
	}
	return nil
}

// servePaced answers GET /paced?seconds=S&chunks=N.
func servePaced(w http.ResponseWriter, r *http.Request) {
	length, err := strconv.ParseFloat(r.FormValue("seconds"), 64)
	if err != nil || !(length >= 0 && length <= maxPacedSeconds) {
		http.Error(w, fmt.Sprintf("seconds=%s: must be 0 to %d", r.FormValue("seconds"), maxPacedSeconds), http.StatusBadRequest)
		return
	}
	chunks, err := strconv.Atoi(r.FormValue("chunks"))
	if err != nil || chunks < 0 || chunks > maxChunks {
		http.Error(w, fmt.Sprintf("chunks=%s: must be 0 to %d", r.FormValue("chunks"), maxChunks), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	began := time.Now()
	// The head tells the client its server; the end comes without a length, so
	// that an empty answer can last, too.
	if http.NewResponseController(w).Flush() != nil {
		return
	}
	steps := max(chunks, 1)
	for i := range steps {
		due := began.Add(seconds(length * float64(i+1) / float64(steps)))
		if sleep(r.Context(), time.Until(due)) != nil {
			return
		}
		if chunks == 0 {
			return
		}
		if _, err := w.Write(pattern[i*chunkBytes%len(pattern):][:chunkBytes]); err != nil {
			return
		}
		// The last one leaves with the end.
		if i+1 < steps && http.NewResponseController(w).Flush() != nil {
			return
		}
	}
}
