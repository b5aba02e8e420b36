-- As owner, when the ledger is made: for which team each login pays.
SELECT x402.let_in('research', 'team:research');
SELECT x402.let_in('writing', 'team:writing');
SELECT x402.let_in('shops', 'team:shops');
