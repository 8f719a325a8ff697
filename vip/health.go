package vip

import "time"

// Health is a VIP's check, sent through its forwarding to the VIP on each
// server. In an assignment every default is filled in.
type Health struct {
	Type     string        `yaml:"type" json:"type"`         // tcp (default) or http
	Port     uint16        `yaml:"port" json:"port"`         // default: the VIP's
	Path     string        `yaml:"path" json:"path"`         // http: default /
	Host     string        `yaml:"host" json:"host"`         // http: Host header, default the VIP's address
	Interval time.Duration `yaml:"interval" json:"interval"` // 100ms to 1h, default 2s
	Timeout  time.Duration `yaml:"timeout" json:"timeout"`   // at most interval, default 1s
	Rise     int           `yaml:"rise" json:"rise"`         // good answers in a row to be up, default 2
	Fall     int           `yaml:"fall" json:"fall"`         // bad ones in a row to be down, default 3
}

// Defaults and bounds of checks.
const (
	DefaultInterval = 2 * time.Second
	DefaultTimeout  = time.Second
	DefaultRise     = 2
	DefaultFall     = 3

	MinInterval = 100 * time.Millisecond
	MaxInterval = time.Hour
	MaxInARow   = 100 // of rise and fall
)
