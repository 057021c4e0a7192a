package plan

import (
	"testing"
)

// InfluxDB keeps some names to itself, and refuses rows that have a tag of one of them.
func TestNoTagHasANameOfInfluxDBsOwn(t *testing.T) {
	tags := (&Plan{RunID: "r", Point: "p", Phase: "measurement", Host: "h", Virtual: true}).Tags()
	if tags["timescale"] != "virtual" {
		t.Errorf("rows do not tell that their time is virtual: %v", tags)
	}
	for _, name := range []string{"time", "_field", "_measurement"} {
		if value, taken := tags[name]; taken {
			t.Errorf("tag %s=%s is InfluxDB's own", name, value)
		}
	}
}
