package recovery

import (
	"bytes"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/sha512"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Phrases of BIP-39, in English: 12, 15, 18, 21 or 24 words, which stand for 16 to 32 bytes of entropy and a
// checksum of them.

//go:embed english.txt
var englishText string

// english are the 2048 words of BIP-39, in the order of the alphabet.
var english = sync.OnceValue(func() []string { return strings.Fields(englishText) })

const (
	wordBits  = 11
	mostWords = 24

	bip39Rounds   = 2048
	bip39SeedSize = 64
)

func isPhraseLength(words int) bool { return words >= 12 && words <= mostWords && words%3 == 0 }

// entropySize is that of a phrase of so many words: 4 bytes for every 3 words.
func entropySize(words int) int { return words / 3 * 4 }

// wordsOf are the numbers of the words that stand for entropy.
func wordsOf(entropy []byte) []int {
	sum := sha256.Sum256(entropy)
	bits := append(slices.Grow(bytes.Clone(entropy), 1), sum[0])
	defer clear(bits)
	words := make([]int, len(entropy)/4*3)
	for i := range len(words) * wordBits {
		words[i/wordBits] = words[i/wordBits]<<1 | int(bits[i/8]>>(7-i%8)&1)
	}
	return words
}

var (
	errPhraseLength   = errors.New("a phrase has 12, 15, 18, 21 or 24 words")
	errPhraseChecksum = errors.New("its checksum is wrong: a word is another one, or two have changed places")
)

// entropyOf is the reverse of wordsOf, which checks the checksum. The caller wipes what it returns.
func entropyOf(words []int) ([]byte, error) {
	if !isPhraseLength(len(words)) {
		return nil, fmt.Errorf("%w, this one %d", errPhraseLength, len(words))
	}
	entropy := make([]byte, entropySize(len(words)))
	for i := range len(entropy) * 8 {
		bit := words[i/wordBits] >> (wordBits - 1 - i%wordBits) & 1
		entropy[i/8] |= byte(bit << (7 - i%8))
	}
	again := wordsOf(entropy)
	defer clear(again)
	if !slices.Equal(words, again) {
		clear(entropy)
		return nil, errPhraseChecksum
	}
	return entropy, nil
}

// unknownWord says which word of a phrase is in no list, and not what it is.
type unknownWord int

func (n unknownWord) Error() string {
	return fmt.Sprintf("word %d is not in the English list of BIP-39", int(n)+1)
}

// readWords reads words in the form that they have in the list, or NFKD and lower case make of them. It
// returns those up to the first that is in no list. near are up to three words that look like that one: they
// say much of it, and are for the person at the terminal alone.
func readWords(text []byte) (words []int, near []string, err error) {
	folded := foldWords(text)
	defer clear(folded)
	words = make([]int, 0, mostWords+1)
	for i, word := range bytes.Fields(folded) {
		n, known := slices.BinarySearchFunc(english(), word, func(listed string, word []byte) int {
			return bytes.Compare([]byte(listed), word)
		})
		switch {
		case !known:
			return words, nearWords(string(word)), unknownWord(i)
		case len(words) == mostWords:
			return words, nil, fmt.Errorf("%w, this one more", errPhraseLength)
		}
		words = append(words, n)
	}
	return words, nil, nil
}

// foldWords is text in NFKD, and in lower case as the list is. It does not outgrow one buffer.
func foldWords(text []byte) []byte {
	folded := norm.NFKD.Append(make([]byte, 0, maxNFKD*len(text)), text...)
	for i, b := range folded {
		if b < unicode.MaxASCII {
			folded[i] = byte(unicode.ToLower(rune(b)))
		}
	}
	return folded
}

// maxNFKD is how many times longer UTF-8 can become in that form (UAX #15).
const maxNFKD = 11

// mostNear is how many words are named that look like one that is in no list.
const mostNear = 3

// nearWords are those of the list that begin with the same four letters, by which each is known, or else are
// one or two changes away.
func nearWords(word string) (near []string) {
	if len(word) > 3*len("abstract") {
		return nil
	}
	byDistance := map[int][]string{}
	for _, listed := range english() {
		distance := editDistance(word, listed)
		if len(word) >= 4 && strings.HasPrefix(listed, word[:4]) {
			distance = 0
		}
		byDistance[distance] = append(byDistance[distance], listed)
	}
	for distance := 0; distance < 3 && len(near) == 0; distance++ {
		near = byDistance[distance]
	}
	return near[:min(len(near), mostNear)]
}

// editDistance is how many letters have to be put in, left out, exchanged or swapped with their neighbour.
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range b {
		rows[0][j+1] = j + 1
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// spell writes words as BIP-39 hashes them: with one space between. The caller wipes it.
func spell(words []int) []byte {
	text := make([]byte, 0, mostWords*(len("abstract")+1))
	for i, n := range words {
		if i > 0 {
			text = append(text, ' ')
		}
		text = append(text, english()[n]...)
	}
	return text
}

// bip39Seed is what all keys of a phrase are derived from. passphrase is BIP-39's, which makes another
// wallet of the same words; it may be empty. The caller wipes it.
func bip39Seed(words []int, passphrase []byte) ([]byte, error) {
	text := spell(words)
	defer clear(text)
	salt := norm.NFKD.Append(append(make([]byte, 0, 8+maxNFKD*len(passphrase)), "mnemonic"...), passphrase...)
	defer clear(salt)
	// it takes a string: a copy that is not wiped
	return pbkdf2.Key(sha512.New, string(text), salt, bip39Rounds, bip39SeedSize)
}
