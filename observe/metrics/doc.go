// Package metrics exports the counters of devices to Prometheus.
//
// Operators know the counters of Linux rxe (/sys/class/infiniband/rxe0/ports/1/
// hw_counters) and of mlx5 (the same place, and ethtool -S). Where a device
// here counts the same, the metric has that name, with the prefix rocev2_ and
// the suffix _total: rocev2_sent_pkts_total, rocev2_np_cnp_sent_total. All
// counters of the verbs are there under their own names too:
// rocev2_qp_retransmits_total is the field Retransmits of verbs.QPStats, summed
// over all queue pairs, also those that are closed.
//
// The label is the device. There is none for a queue pair: their numbers change
// with every connection, and a time series for each would fill any database.
package metrics
