package paths

import "github.com/fairlead/fairlead/daemon"

// Labels are names of fabric.yaml.
var (
	mPlacedFlows  = daemon.Gauge("path_flows", "Flows that are placed.")
	mLinkFlows    = daemon.Gauge("path_link_flows", "Placed flows that pass the link, sent by the node from.", "link", "from")
	mLinkMeasured = daemon.Gauge("path_link_measured_bits_per_second", "What was measured on the link; not there if nothing was.", "link", "from")
	mLinkCapacity = daemon.Gauge("path_link_capacity_bits_per_second", "The link's capacity, where fabric.yaml states it.", "link")
	mPathWarnings = daemon.Gauge("path_warnings", "Lines of warnings that `fairlead path load` shows.")

	families = []daemon.Metric{mPlacedFlows, mLinkFlows, mLinkMeasured, mLinkCapacity, mPathWarnings}
)

// collect turns one GetFabric into metrics.
func (s *service) collect(emit daemon.Emitter) error {
	m := s.view().message()
	emit(mPlacedFlows, float64(m.Flows))
	emit(mPathWarnings, float64(len(s.warnings())))
	for _, l := range m.Links {
		if l.Capacity > 0 {
			emit(mLinkCapacity, float64(l.Capacity), l.Name)
		}
		for _, load := range l.Loads {
			emit(mLinkFlows, float64(load.Flows), l.Name, load.From)
			if load.UntilUnixMs > 0 {
				emit(mLinkMeasured, load.Measured, l.Name, load.From)
			}
		}
	}
	return nil
}
