package hca

const (
	minQPN        = 0x10 // 0 and 1 are management queue pairs; a few more stay reserved
	asyncEventCap = 4096 // events kept for a program that does not read them
)
