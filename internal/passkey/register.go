package passkey

import (
	"encoding/json"

	"github.com/go-webauthn/webauthn/protocol"
)

// CreationOptions are what a browser makes a passkey by: one that is found without its id, and whose
// authenticator verifies its person each time. Which authenticator it is nobody asks.
func CreationOptions(origin, name string, user, challenge []byte) ([]byte, error) {
	rpID, err := RPID(origin)
	if err != nil {
		return nil, err
	}
	name = "x402-wallet " + name
	required := true
	return json.Marshal(protocol.PublicKeyCredentialCreationOptions{
		RelyingParty: protocol.RelyingPartyEntity{ID: rpID,
			CredentialEntity: protocol.CredentialEntity{Name: "x402-wallet"}},
		User: protocol.UserEntity{ID: protocol.URLEncodedBase64(user), DisplayName: name,
			CredentialEntity: protocol.CredentialEntity{Name: name}},
		Challenge:  challenge,
		Parameters: parameters(),
		Timeout:    int(Life.Milliseconds()),
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey:        protocol.ResidentKeyRequirementRequired,
			RequireResidentKey: &required,
			UserVerification:   protocol.VerificationRequired,
		},
		Attestation: protocol.PreferNoAttestation,
	})
}

// parameters are the algorithms of the passkeys that are made.
func parameters() (list []protocol.CredentialParameter) {
	for _, a := range algorithms {
		list = append(list,
			protocol.CredentialParameter{Type: protocol.PublicKeyCredentialType, Algorithm: a})
	}
	return list
}

// Registered is the passkey that a browser made for a challenge, at an origin (WebAuthn §7.1). No
// attestation is asked for, and none is believed: one that comes all the same only has to be well signed.
func Registered(origin string, challenge, answer []byte) (k Key, err error) {
	rpID, err := RPID(origin)
	if err != nil {
		return k, err
	}
	if err := checkSize(answer); err != nil {
		return k, err
	}
	made, err := protocol.ParseCredentialCreationResponseBytes(answer)
	if err != nil {
		return k, withReason(err)
	}
	data := made.Response.AttestationObject.AuthData
	if err := checkStricter(made.Response.CollectedClientData, data, origin); err != nil {
		return k, err
	}
	_, err = made.Verify(encode(challenge), rpID, []string{origin}, nil, nil, topOrigins, allowFrame,
		verified, present, nil, parameters(), protocol.AttestationPolicy{}, protocol.SignaturePolicy{})
	if err != nil {
		return k, withReason(err)
	}
	public := data.AttData.CredentialPublicKey
	if err := checkKey(public); err != nil {
		return k, err
	}
	return Key{ID: encode(data.AttData.CredentialID), PublicKey: encode(public), Origin: origin,
		Count: int64(data.Counter)}, nil
}
