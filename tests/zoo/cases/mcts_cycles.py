"""Plays Connect Four by tree search; the collector is off while a move is thought about."""

import gc
import math
import random
import time

import numpy as np

ROWS, COLUMNS, GAMES, PLAYOUTS, SECONDS = 6, 7, 12, 80, 0.15


class TimeUp(Exception):
    pass


class Node:
    def __init__(self, parent, move, player, board):
        self.parent, self.move, self.player = parent, move, player
        self.board = board
        self.children = []
        self.untried = [c for c in range(COLUMNS) if board[0, c] == 0]
        self.visits, self.wins = 0, 0.0

    def best_child(self):
        logarithm = math.log(self.visits)
        return max(
            self.children, key=lambda n: n.wins / n.visits + math.sqrt(1.5 * logarithm / n.visits)
        )

    def expand(self, dice):
        move = self.untried.pop(dice.randrange(len(self.untried)))
        child = Node(self, move, -self.player, drop(self.board, move, self.player))
        self.children.append(child)
        return child


def drop(board, column, player):
    after = board.copy()
    row = int((board[:, column] == 0).sum()) - 1
    after[row, column] = player
    return after


def winner(board):
    for player in (1, -1):
        mine = board == player
        if (
            (mine[:, :-3] & mine[:, 1:-2] & mine[:, 2:-1] & mine[:, 3:]).any()
            or (mine[:-3] & mine[1:-2] & mine[2:-1] & mine[3:]).any()
            or (mine[:-3, :-3] & mine[1:-2, 1:-2] & mine[2:-1, 2:-1] & mine[3:, 3:]).any()
            or (mine[3:, :-3] & mine[2:-1, 1:-2] & mine[1:-2, 2:-1] & mine[:-3, 3:]).any()
        ):
            return player
    return 0


def play_out(board, player, dice):
    board = board.copy()
    for _ in range(12):
        won = winner(board)
        free = [c for c in range(COLUMNS) if board[0, c] == 0]
        if won or not free:
            return won
        column = dice.choice(free)
        board[int((board[:, column] == 0).sum()) - 1, column] = player
        player = -player
    return 0


def think(board, player, dice, playouts):
    root = Node(None, None, player, board)
    gc.disable()  # no pauses while the clock runs
    for _ in range(playouts):
        node = root
        while not node.untried and node.children:
            node = node.best_child()
        if node.untried:
            node = node.expand(dice)
        result = winner(node.board) or play_out(node.board, node.player, dice)
        while node is not None:
            node.visits += 1
            node.wins += 0.5 if result == 0 else float(result == -node.player)
            node = node.parent
        if root.visits >= playouts:
            raise TimeUp(max(root.children, key=lambda n: n.visits).move)
    gc.enable()
    raise RuntimeError("too few visits")


def main():
    dice = random.Random(0)
    won = {1: 0, -1: 0, 0: 0}
    begun, thought = time.monotonic(), 0
    for game in range(GAMES):
        board, player = np.zeros((ROWS, COLUMNS), np.int8), 1
        moves = 0
        while not winner(board) and (board[0] == 0).any():
            # Both players use the whole time that a move has.
            time.sleep(max(0.0, begun + thought * SECONDS - time.monotonic()))
            thought += 1
            try:
                think(board, player, dice, PLAYOUTS if player == 1 else PLAYOUTS // 3)
            except TimeUp as up:
                move = up.args[0]
            board, player = drop(board, move, player), -player
            moves += 1
        won[winner(board)] += 1
        print(f"game {game}: {moves} moves, {won[1]} to {won[-1]}", flush=True)


if __name__ == "__main__":
    main()
