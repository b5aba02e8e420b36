package x402

// NetworkRow is a network of the table.
type NetworkRow struct{ CAIP2, Title string }

// Networks are the networks of the table, in its order.
func Networks() (list []NetworkRow) {
	for _, n := range networks {
		list = append(list, NetworkRow{CAIP2: n.caip2, Title: n.title})
	}
	return list
}
