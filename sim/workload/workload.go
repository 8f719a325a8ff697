// Package workload is who asks, how much and for how long, and when servers
// change: what the scenarios are run under. Each workload is small, named and
// says where it comes from; `fairlead sim workloads` lists them.
//
//	distribution, parse, data/   durations and sizes, ours and a user's file
//	arrivals                     connections: start, lifetime, key
//	flowfile, capture            a user's own connections (CSV, pcap)
//	updates                      servers that leave and come
//	rate                         arrivals whose rate changes (sinusoid)
//	service                      how long a request occupies a server
//	flood                        SYNs that nobody completes
//	zipf                         flows of very different sizes
//
// Times are integer nanoseconds. What is drawn depends on the random stream
// that it is given, and on nothing else.
package workload
