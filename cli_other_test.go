//go:build !unix

package main

func detach() {}

func become(string) {}
